"""Several machines that share out shards: nodes, what processes they have, the way between them."""
