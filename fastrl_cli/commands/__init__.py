"""What the commands do, imported once one is chosen."""
