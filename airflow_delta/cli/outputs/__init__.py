"""What subcommands print with ``--json``, as types; ``json_schema.py`` makes a JSON Schema of them."""
