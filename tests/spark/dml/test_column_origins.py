"""The columns that the lineage of a task finds in the text of new values, compared with Spark's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.hooks.lineage.column_origins import column_origins
from airflow_delta.hooks.lineage.datasets import Column, LineageDataset, NewValues, RowChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Many names are words of SQL: of types, functions, units, clauses.
TYPES = {
    "id": "bigint",
    "x": "int",
    "y": "int",
    "day": "int",
    "year": "int",
    "month": "int",
    "hour": "int",
    "date": "date",
    "time": "timestamp",
    "timestamp": "timestamp",
    "end": "int",
    "first": "string",
    "text": "string",
    "string": "string",
    "int": "int",
    "key": "string",
    "value": "double",
    "type": "string",
    "utf8_binary": "string",
    "current_date": "date",
    "abs": "int",
    "if": "int",
    "size": "int",
    "decimal": "decimal(10, 2)",
    "flag": "boolean",
    "tags": "array<string>",
    "names": "map<string, int>",
    "address": "struct<city: string, id: int, day: int>",
    "odd name": "int",
    "set": "int",
    "struct": "int",
    "binary": "binary",
    "escape": "string",
    "zone": "string",
    "both": "int",
    "unit": "string",
    "week": "int",
    "interval": "int",
}
"""The columns and their types."""

EXPRESSIONS = """
id
x + y
`odd name` * 2
-x
abs(x)
abs
abs + abs(y)
if(flag, x, y)
if
date
date '2026-01-31'
date_add(date, x)
date + interval 1 day
date + interval '1' year
time - interval 3 hours
timestamp '2026-01-31 00:00:00'
timestampadd(day, x, time)
timestampadd(HOUR, 1, timestamp)
timestampdiff(month, time, timestamp)
datediff(week, time, timestamp)
date_trunc('month', time)
extract(year from time)
extract(day from date)
date_part('hour', time)
current_date
current_date()
case when flag then x else y end
case x when 1 then 'id' when 2 then string else text end
case when x > 1 then 1 end
end
cast(x as string)
cast(x as int)
cast(key as date)
cast(value as decimal(10, 2))
cast(tags as array<string>)
cast(address as struct<city: string, id: int, day: int>)
cast(null as struct<x: int, y: int>)
x::string
string(x)
int(key)
decimal(key)
size(tags)
tags[0]
tags[size]
names['x']
names[key]
address.city
address.id + id
address['day']
named_struct('x', y)
struct(x as y)
struct
map(key, x)
array(x, y, 3)
transform(tags, x -> concat(x, key))
transform(tags, (x, y) -> x)
filter(tags, id -> id is not null)
aggregate(array(x), 0, (id, y) -> id + y)
exists(tags, key -> key = 'a')
text like 'a%'
text like 'a!%' escape '!'
text not like key
text rlike 'x+'
x in (1, 2, y)
x between y and day
x is null or y is not null
flag and not flag
x is distinct from y
x <=> y
x div y
x % y
x | y & day
text || 'id' || key
'it''s id'
"id"
"x" || text
r'x\\n' || key
X'1AFF'
x /* y */ + day -- year
concat(text, '--', key)
concat_ws('`', text, key)
trim(both from text)
trim(both 'x' from text)
trim(leading key from text)
substring(text from 2 for x)
position('a' in text)
overlay(text placing key from 2)
text collate utf8_binary
coalesce(x, y, 0)
nullif(x, 0)
nvl2(x, y, day)
to_date(key, 'yyyy')
1
null
true
interval 1 day
interval
both
set
first
type
zone
unit
1 day
x is true
to_json(struct(*))
hash(x, y)
(select max(1))
(select 1 where x > 0)
x in (select 1)
1e3
1.5
.5 + x
x.y
mask(key)
text = "id"
to_timestamp_ntz(key)
convert_timezone(zone, 'UTC', time)
make_interval(year, month)
make_date(year, month, day)
make_date(year => 2026, month => 1, day => x)
try_add(x, y)
get_json_object(text, '$.id')
binary
string
value + decimal
rand()
count(x)
sum(x) over (partition by y)
count(x) filter (where flag)
""".strip().splitlines()


def ours(table: LineageDataset, expression: str) -> set[str] | None:
    """The columns that lineage has found; None if it takes them for uncertain."""
    changes = RowChanges((NewValues({"id": f"{expression}"}),))
    known = LineageDataset(table.uri, 1, columns=table.columns, row_changes=changes)
    found = {one.origin for one in column_origins(known) if one.name == "id"}
    # The column has the values of rows that aren't changed, if its origins are certain.
    return (found - {"id"}) if found else None


def theirs(rows: DataFrame, expression: str) -> set[str] | None:
    """The columns that Spark has resolved; None if the expression is an error."""
    from pyspark.errors import PySparkException

    try:
        found: Any = rows.selectExpr(expression)._jdf
    except PySparkException:
        return None
    references = found.queryExecution().analyzed().expressions().head().references().toSeq()
    names = {str(references.apply(number).name()) for number in range(references.size())}
    return names - {"id"}


@pytest.mark.deep
def test_every_certain_origin_is_one_for_spark(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items()))
    members = tuple(Column(name, "int") for name in ("city", "id", "day"))
    columns = tuple(
        Column(name, kind, fields=members if kind.startswith("struct") else ())
        for name, kind in TYPES.items()
    )
    table = LineageDataset("/table", 1, columns=columns)
    found = {one: (ours(table, one), theirs(rows, one)) for one in EXPRESSIONS}
    wrong = {one: pair for one, pair in found.items() if None not in pair and pair[0] != pair[1]}
    assert wrong == {}
    # Most of what users write is certain.
    certain = [one for one, pair in found.items() if None not in pair]
    assert len(certain) > 60
