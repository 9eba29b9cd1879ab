"""What platform and endpoints of SEMQ have in common: words, fields, tickets."""
