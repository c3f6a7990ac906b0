"""The types of what subcommands print with ``--json``; ``json_schema.py`` makes a JSON Schema of them."""
