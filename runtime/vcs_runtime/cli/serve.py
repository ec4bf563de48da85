"""`vcs-runtime serve`: scores over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_runtime.cli.messages import warn, warnings_as_lines
from vcs_runtime.cli.options import (
    PATH,
    NumberRange,
    SectionedCommand,
    combined,
    scorer_options,
    served_embedder,
    usage_errors,
)
from vcs_runtime.cli.scoring import MetricOptions, scoring_options
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.serve.limits import Limits
from vcs_runtime.util.extras import require


@click.command(cls=SectionedCommand)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="HOST",
    help="Address to listen on; an address that other machines can reach needs --token-file.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    metavar="PORT",
    help="Port to listen on; 0 chooses a free port.",
)
@click.option(
    "--token-file",
    type=PATH,
    metavar="FILE",
    help=(
        "File with the token that clients must send: 16 or more ASCII characters. "
        "[default: no token]"
    ),
)
@combined(
    "limits",
    Limits,
    click.option(
        "--max-body-mb",
        type=NumberRange(0, 1_000_000, min_open=True),
        default=8,
        metavar="MB",
        help="Maximum size of a request.",
    ),
    click.option(
        "--max-pairs",
        type=click.IntRange(min=1),
        default=1000,
        metavar="N",
        help="Maximum number of pairs in a request.",
    ),
    click.option(
        "--max-pair-characters",
        type=click.IntRange(min=1),
        default=200_000,
        metavar="N",
        help="Maximum number of characters in all texts of a pair.",
    ),
    click.option(
        "--timeout-s",
        type=NumberRange(0, 1_000_000, min_open=True),
        default=60,
        metavar="S",
        help="Maximum seconds to score a request, and to finish after SIGTERM.",
    ),
    click.option(
        "--queue",
        type=click.IntRange(min=1),
        default=64,
        metavar="N",
        help="Maximum number of requests that wait or are scored; further requests get HTTP 429.",
    ),
)
@scoring_options
@scorer_options
@served_embedder
def serve(
    host: str,
    port: int,
    token_file: Path | None,
    limits: Limits,
    metric: MetricOptions,
    config: ScorerConfig,
) -> None:
    """Serve scores over HTTP.

    The options of scoring are the defaults of requests. After SIGTERM or Ctrl-C, the server
    finishes the accepted requests and ends with exit code 0. docs/guide/serve.md describes the
    requests.

    \b
    Examples:
      vcs-runtime serve
      openssl rand -hex 32 > token.txt
      vcs-runtime serve --host 0.0.0.0 --token-file token.txt --device cuda:0
    """
    for package in ("starlette", "uvicorn"):
        require(package, "serve", "vcs-runtime serve")
    from vcs_runtime.serve.server import ScoreServer, is_loopback, listen, read_token

    if token_file is None and not is_loopback(host):
        raise click.UsageError(f"other machines can reach --host {host}: add --token-file")
    token = None if token_file is None else read_token(token_file, warn)
    with usage_errors(), warnings_as_lines():  # the models are opened by a thread of the server
        ScoreServer(listen(host, port), config, metric.options, limits, token, warn).run()
