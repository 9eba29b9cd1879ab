"""Messages go to waiting pulls; a delivery is settled, retried, or expires."""
