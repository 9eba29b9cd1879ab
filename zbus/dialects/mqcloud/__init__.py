"""MQCloud's HTTP interface: produce, consume and acknowledge, on the same messages."""
