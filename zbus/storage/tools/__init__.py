"""What works on stored logs while no broker does: verify, repair, back up, restore."""
