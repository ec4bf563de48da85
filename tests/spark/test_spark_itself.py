"""`make_predict_fn` in Spark: the session `spark` of `make nox`, which needs Java."""

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
def test_spark_gives_the_numbers_of_one_process(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with Scorer.open(tiny_bundle, device="cpu") as scorer:
        results = scorer.score_many(TEXTS)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        rows = [(i, *pair) for i, pair in enumerate(TEXTS)]
        frame = spark.createDataFrame(
            rows, "id int, reference string, generated string"
        ).repartition(3)
        vcs = predict_batch_udf(
            partial(make_predict_fn, tiny_bundle), return_type=DoubleType(), batch_size=16
        )
        names = ("vcs", "margin", "flags", "error")
        types = (DoubleType(), DoubleType(), StringType(), StringType())
        several = predict_batch_udf(
            partial(make_predict_fn, tiny_bundle, columns=names),
            return_type=StructType(
                [StructField(*column) for column in zip(names, types, strict=True)]
            ),
            batch_size=7,
        )
        rows_scored = (
            frame.withColumn("vcs", vcs("reference", "generated"))
            .withColumn("several", several("reference", "generated"))
            .orderBy("id")
            .collect()
        )
    finally:
        spark.stop()
    # Spark has null where the function's column has NaN.
    assert [row.vcs for row in rows_scored] == [result.scores and result.vcs for result in results]
    for row, result in zip(rows_scored, results, strict=True):
        vcs, margin = (result.scores.vcs, result.scores.margin) if result.scores else (None, None)
        assert tuple(row.several) == (vcs, margin, ",".join(result.flags), result.error or "")
    assert [row.id for row in rows_scored if row.several.error] == [5]
