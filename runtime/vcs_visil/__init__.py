"""ViSIL: the information of a video that a summary loses (docs/guide/visil.md).

from vcs_visil import Image, Summary, Video, visil
results = visil(Video(frames), caption, keywords, [Summary("A man parks.")], model)
"""

from vcs_visil.asking import VisilOptions
from vcs_visil.frames import parse_timecode
from vcs_visil.masking import MaskedCaption, mask_caption
from vcs_visil.models.generated import Generated, Generates
from vcs_visil.models.logprobs import Forced, LogProbs
from vcs_visil.models.probing import probe, probe_generated
from vcs_visil.models.recorded import Recorded, Recorder
from vcs_visil.score import VisilResult, visil
from vcs_visil.selection import frontier, select_summary
from vcs_visil.summaries import Image, Summary, Video
from vcs_visil.writing import answered

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
    "answered",
    "frontier",
    "mask_caption",
    "parse_timecode",
    "probe",
    "probe_generated",
    "select_summary",
    "visil",
]
