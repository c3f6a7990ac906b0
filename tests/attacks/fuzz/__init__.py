"""A fuzzer of hostile tables.

Whatever lies in a table's directory, each public operation gives a right answer or a typed error, in
bounded time and memory, and touches nothing outside the root.

==================  ==================================================================================
`case`              a table made hostile by a seed, and what is known of the right answers
`tables`            the tables before that: one history in every form of its log
`mutations`         what is done to them
`hostile`           the paths, numbers and texts that mutations put in
`files`             a directory as data: files, links, pipes; laid out as often as needed
`operations`        every public operation, and what must be true after those that write
`watch`             an audit hook, and a directory beside the table that nobody may touch
`listener`          the proxy and evil host that nobody may speak to
`worker`            a process that forks a child with limits for each case
`runner`            starts workers, kills what takes too long, collects findings
==================  ==================================================================================

``python -m tests.attacks.fuzz --seed 17 --cases 1 --verbose`` runs one case again.
"""
