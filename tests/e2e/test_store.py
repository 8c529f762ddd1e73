"""Stores: what farthing writes others can read and the other way round; boto3 is the second opinion."""


def test_the_s3_server_serves(bucket):
    bucket.write("a/b c", b"hello")
    assert bucket.keys() == ["a/b c"] and bucket.read("a/b c") == b"hello"
