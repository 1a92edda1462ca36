"""Automatic sources: votes where nobody has written rules. A module for each method, with one entry.

    snuba         `write_heuristics`   rules from words or columns, written from the trusted rows
    interactive   `Proposals`          rules that are proposed to a person, who says which are useful
    affinity      `code_affinity`      groups of similar images, named by the trusted rows

They share `words` (which words are in which texts) and `trusted` (votes on trusted rows that are honest).
"""
