"""From text, images and tables to numbers: each encoder makes one block of columns, fitted once and kept with the model."""
