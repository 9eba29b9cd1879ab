"""The endpoint as a program: sockets, frames, encryption, the socket of applications."""
