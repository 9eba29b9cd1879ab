"""Why a message is where it is, for people who look for one. Nothing is changed here."""
