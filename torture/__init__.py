"""A campaign of faults: servers and commands that are killed, disks, clocks and databases that fail; see docs/trust.md."""
