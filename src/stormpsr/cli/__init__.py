"""The command line: a file per command or group of commands; heavy imports live inside the commands."""
