"""Problems to learn from, and the rules that judge replies: the implementations of `dapo.ports.Task`."""
