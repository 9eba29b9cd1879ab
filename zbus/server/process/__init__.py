"""The process around the loop: start and stop, listeners, certificates, tokens, logs."""
