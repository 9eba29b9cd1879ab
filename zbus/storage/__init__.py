"""What the broker writes and reads again, and the engines that keep it, behind one port."""
