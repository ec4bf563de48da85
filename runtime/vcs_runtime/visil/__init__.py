"""ViSIL: the information of a video that a summary loses (docs/guide/visil.md).

from vcs_runtime.visil import Image, Summary, Video, visil
results = visil(Video(frames), caption, keywords, [Summary("A man parks.")], model)
"""

from vcs_runtime.visil.frames import parse_timecode
from vcs_runtime.visil.images import Image
from vcs_runtime.visil.masking import MaskedCaption, mask_caption
from vcs_runtime.visil.models.generated import Generated, Generates
from vcs_runtime.visil.models.logprobs import Forced, LogProbs
from vcs_runtime.visil.models.probing import probe, probe_generated
from vcs_runtime.visil.models.recorded import Recorded, Recorder
from vcs_runtime.visil.options import VisilOptions
from vcs_runtime.visil.score import VisilResult, visil
from vcs_runtime.visil.selection import frontier, select_summary
from vcs_runtime.visil.summaries import Summary, Video

__all__ = [
    "Forced",
    "Generated",
    "Generates",
    "Image",
    "LogProbs",
    "MaskedCaption",
    "Recorded",
    "Recorder",
    "Summary",
    "Video",
    "VisilOptions",
    "VisilResult",
    "frontier",
    "mask_caption",
    "parse_timecode",
    "probe",
    "probe_generated",
    "select_summary",
    "visil",
]
