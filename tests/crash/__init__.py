"""The crash matrix: a process is killed at each step of the protocol, and what then comes is measured."""
