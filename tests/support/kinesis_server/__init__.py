"""A Kinesis for tests: the real API with a clock that the test moves, real limits, trimming, and faults.

In one process, without HTTP, which is fast enough for hundreds of runs of a property test::

    from tests.support.kinesis_server.clock import VirtualClock
    from tests.support.kinesis_server.engine import Engine
    from tests.support.kinesis_server.in_process import InProcessClient

    clock = VirtualClock()                      # now(), monotonic(), advance(seconds), sleep(seconds) = advance
    engine = Engine(clock)                      # one account in one region; thread-safe
    client = InProcessClient(engine)            # boto3's methods, answers and errors; max_attempts=1, no retries
    client.create_stream(StreamName="clicks", ShardCount=2)
    client.put_record(StreamName="clicks", Data=b"1", PartitionKey="k", ExplicitHashKey="0")
    client.split_shard(...), .merge_shards(...), .update_shard_count(...), .delete_stream(...), .subscribe_to_shard(...)

What a test switches on, at any time:

- ``engine.limits = Limits.real()`` or ``Limits(get_records_per_second=5, read_bytes_per_second=2 * MIB, ...)``;
  every limit that is not given is off (`limits.py`);
- ``engine.behaviour = Behaviour(transition_seconds=10, empty_page_every=3, end_with_data=False, ...)``: how long
  CREATING/UPDATING/DELETING lasts, empty pages in the middle of a shard, how a shard ends (`state.py`);
- ``engine.faults.throttle("GetRecords", stream="clicks", shard_id=..., after=2, times=3)``, and likewise
  ``fail`` (500), ``reset``, ``slow``, ``lose_answer``, ``deny``, ``expire_iterator``, ``kms``, ``refuse`` (any code)
  and ``before(operation, act)``, which runs something just before the call is served (`faults.py`);
- ``connect(engine, other)`` lets two accounts reach each other by ARN, as far as ``client.put_resource_policy(...)``
  allows it (`policies_api.py`); the accounts of one HTTP server are connected;
- ``clock.advance(25 * 3600)`` trims by age; ``engine.trim("clicks", shard_id, through=number)`` trims at once, and
  ``engine.expire_shard("clicks", shard_id)`` lets a closed shard vanish as if it were older than the retention.

What a test can look at: ``engine.calls["ListShards"]`` counts calls, ``engine.stored("clicks")`` is what is readable by
shard, ``engine.stream("clicks")`` the stream with its shards.

Over HTTP, for boto3 and Spark (`http.py`): the fixture ``kinesis_server`` is one server for the test run; the fixture
``kinesis_account`` is an account of its own on it, with ``.engine``, ``.clock``, ``.client(**options)`` (of boto3),
``.settings()`` (the package's `AwsSettings`), ``.endpoint_url`` and ``.access_key_id``;
``kinesis_server.account(RealClock())`` is one with the machine's clock. As a process of its own, with the machine's
clock, which `process.py` starts in a test and `control.py` controls::

    python -m tests.support.kinesis_server --port 0      # prints its endpoint
"""
