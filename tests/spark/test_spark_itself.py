"""`make_predict_fn` in Spark: `make spark`, which needs Java."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from support.stories import story
from vcs_runtime import Scorer
from vcs_runtime.spark import make_predict_fn

TEXTS = [(story(i, 1 + i % 6), story(100 + i)) for i in range(40)]
TEXTS[5] = (TEXTS[5][0], "")


@pytest.mark.filterwarnings("default")
def test_spark_gives_the_numbers_of_one_process(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with Scorer.open(tiny_bundle, device="cpu") as scorer:
        expected = [result.scores and result.vcs for result in scorer.score_many(TEXTS)]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        rows = [(i, *pair) for i, pair in enumerate(TEXTS)]
        frame = spark.createDataFrame(rows, "id int, reference string, generated string").repartition(3)
        vcs = predict_batch_udf(
            partial(make_predict_fn, tiny_bundle), return_type=DoubleType(), batch_size=16
        )
        struct = StructType([StructField("vcs", DoubleType()), StructField("error", StringType())])
        both = predict_batch_udf(
            partial(make_predict_fn, tiny_bundle, columns=("vcs", "error")), return_type=struct, batch_size=7
        )
        rows_scored = (
            frame.withColumn("vcs", vcs("reference", "generated"))
            .withColumn("both", both("reference", "generated")).orderBy("id").collect()
        )  # fmt: skip
    finally:
        spark.stop()
    # Spark has null where the function's column has NaN.
    assert [row.vcs for row in rows_scored] == expected
    assert [row.both.vcs for row in rows_scored] == expected
    assert [row.id for row in rows_scored if row.both.error] == [5]
