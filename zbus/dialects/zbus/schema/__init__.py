"""The tables of commands and parameters, from which the rest is made."""
