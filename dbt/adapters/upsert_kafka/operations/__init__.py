"""Run-operations, documentation and set-up commands."""
