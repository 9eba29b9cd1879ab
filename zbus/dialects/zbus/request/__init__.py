"""One request of the dialect: its parameters, header lines, formats and shapes."""
