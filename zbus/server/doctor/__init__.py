"""What stands in the way of a broker on a machine, before it is started: `zbus doctor`."""
