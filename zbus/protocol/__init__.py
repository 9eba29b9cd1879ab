"""The words that a broker and its clients share: documents and parameters. A leaf."""
