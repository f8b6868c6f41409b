"""How the page looks: colours, style sheet, symbols, and the few lines of script that it can do without."""

from __future__ import annotations

# Text and marks keep a contrast of 4.5 on the paper in both, and methods differ in mark and dash as well as in colour.
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1d21",
    "quiet": "#5a6068",
    "rule": "#e0e2e5",
    "bed": "#f8f8f6",
    "hidden": "#e9e9e6",
    "unseen": "#d6d6d2",
    "link": "#1a5c9e",
    "alert": "#b3261e",
    "detection": "#a3500c",
    "temporal": "#1c66ad",
    "average": "#0a6b55",
    "released": "#7a3e9d",
    "spare1": "#7d6200",
    "spare2": "#5a6068",
}
DARK = {
    "paper": "#15171b",
    "ink": "#e9e8e6",
    "quiet": "#a4a9b1",
    "rule": "#30353d",
    "bed": "#2b3139",
    "hidden": "#1f2328",
    "unseen": "#101114",
    "link": "#86bdf0",
    "alert": "#ff8f85",
    "detection": "#f0a35e",
    "temporal": "#74b6f2",
    "average": "#4ecba3",
    "released": "#c79be6",
    "spare1": "#d9bf4a",
    "spare2": "#b0b5bd",
}
_LOOKS = ("detection", "temporal", "average", "released", "spare1", "spare2")
_DASHES = {"detection": "8 4", "temporal": "2 3", "released": "10 3 2 3", "spare1": "5 2", "spare2": "1 4"}
_MARKS = {
    "detection": '<rect x="-3.6" y="-3.6" width="7.2" height="7.2"/>',
    "temporal": '<path d="M0-4.8 4.4 3.4H-4.4z"/>',
    "average": '<circle r="4.1"/>',
    "released": '<path d="M0-5 5 0 0 5-5 0z"/>',
    "spare1": '<path d="M0 4.8 4.4-3.4H-4.4z"/>',
    "spare2": '<path d="M-4.2-1.4H-1.4V-4.2H1.4V-1.4H4.2V1.4H1.4V4.2H-1.4V1.4H-4.2z"/>',
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


SYMBOLS = (
    '<svg width="0" height="0" class="symbols" aria-hidden="true"><defs>'
    '<path id="cross" d="M-4-4 4 4M4-4-4 4"/>'
    + "".join(f'<g id="mark-{look}">{drawing}</g>' for look, drawing in _MARKS.items())
    + "</defs></svg>"
)

_LOOK_RULES = "\n".join(f".look-{look}{{--c:var(--{look});--dash:{_DASHES.get(look, 'none')}}}" for look in _LOOKS)

STYLE = (
    f":root{{color-scheme:light;{_variables(LIGHT)}--c:var(--ink)}}\n"
    f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{_variables(DARK)}}}}}\n"
    + _LOOK_RULES
    + """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth;scroll-padding-top:12px}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums;overflow-wrap:break-word}
header,main,footer{max-width:1080px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:30px;line-height:1.2;letter-spacing:-.015em;margin:0 0 10px;font-weight:680}
h2{font-size:21px;line-height:1.3;letter-spacing:-.01em;margin:56px 0 6px;font-weight:660}
h3{font-size:16px;margin:34px 0 2px;font-weight:660}
h4{font-size:15px;margin:0 0 2px;font-weight:640}
p{margin:6px 0 12px;max-width:72ch}
a{color:var(--link);text-underline-offset:2px;text-decoration-thickness:1px}
:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:2px}
.symbols{position:absolute}
.quiet,.note{color:var(--quiet)}
.note{font-size:14px}
.warning{border-left:3px solid var(--alert);padding-left:10px}
.lead{font-size:18px;line-height:1.55;max-width:66ch;margin:10px 0 22px}
.lead strong{font-weight:660}
dl.facts{display:flex;flex-wrap:wrap;gap:4px 26px;margin:0;font-size:14px}
dl.facts div{display:flex;gap:6px;min-width:0}
dl.facts dt{color:var(--quiet)}
dl.facts dd{margin:0;min-width:0;overflow-wrap:anywhere}
nav{margin:18px 0 0;padding:9px 0;border-top:1px solid var(--rule);border-bottom:1px solid var(--rule);font-size:14px}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:2px 20px;margin:0;padding:0}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
footer{color:var(--quiet);font-size:13px;padding-top:36px;padding-bottom:48px}

table{border-collapse:collapse;font-size:14px}
caption{text-align:left;color:var(--quiet);font-size:13.5px;padding:0 0 8px;caption-side:top}
th{font-weight:600;text-align:left;vertical-align:top}
td{text-align:right;vertical-align:top}
thead th{color:var(--quiet);font-weight:500;font-size:13px;border-bottom:1px solid var(--rule)}
.scroll{overflow-x:auto;overflow-y:hidden}
.main{width:100%;max-width:820px;font-size:15px}
.main th,.main td{padding:7px 0 7px 22px;width:23%}
.main th:first-child{padding-left:0;width:31%}
.main thead th:not(:first-child){text-align:right}
.main .method{display:inline-block;padding-left:16px;text-indent:-16px}
.main .direction{display:block;font-size:11.5px;font-weight:400}
.main .group{padding:20px 0 5px;border-bottom:1px solid var(--rule);font-weight:640;width:auto}
.main .group .quiet{font-weight:400;font-size:13.5px;margin-left:4px}
.value{font-weight:620;font-size:16px}
.interval{color:var(--quiet);font-size:12.5px;margin-left:8px;white-space:nowrap}
.whisker{display:block;width:100%;margin-top:1px;overflow:visible}
.rail{stroke:var(--rule);stroke-width:1.5}
.range{stroke:var(--c);stroke-width:3;stroke-opacity:.45;stroke-linecap:round}
.numbers{border-collapse:separate;border-spacing:0}
.numbers th,.numbers td{padding:4px 14px 4px 0;white-space:nowrap}
.numbers thead th{text-align:right;vertical-align:bottom}
.numbers thead th:first-child{text-align:left}
.numbers thead th.group{text-align:center;border-bottom:0;padding-bottom:0}
.numbers tbody th{font-weight:500;min-width:7.5em;max-width:15em;white-space:normal;overflow-wrap:anywhere}
.numbers.named tbody th{min-width:9.5em}
.numbers th:first-child[scope=row],.numbers tr:first-child>th[rowspan]:first-child{position:sticky;left:0;
background:var(--paper)}
.numbers .first{padding-left:12px}
.numbers tbody tr>*{border-bottom:1px solid var(--rule)}
.numbers td.missed{color:var(--quiet);font-style:italic}
.numbers td.false,.strip-counts .false{color:var(--alert)}
.method::before{content:"";display:inline-block;width:9px;height:9px;margin-right:7px;background:var(--c)}
.method.look-average::before{border-radius:50%}
.method.look-temporal::before{clip-path:polygon(50% 0,100% 100%,0 100%)}
.method.look-released::before{clip-path:polygon(50% 0,100% 50%,50% 100%,0 50%)}
.method.look-spare1::before{clip-path:polygon(0 0,100% 0,50% 100%)}
.method.look-spare2::before{clip-path:polygon(33% 0,67% 0,67% 33%,100% 33%,100% 67%,67% 67%,67% 100%,33% 100%,33% 67%,
0 67%,0 33%,33% 33%)}
details{margin:8px 0 0;font-size:14px}
summary{cursor:pointer;color:var(--link);width:fit-content}
details>.scroll{margin-top:10px}

svg{display:block;overflow:visible}
svg text{font-size:12px;fill:var(--ink)}
svg .axis{fill:var(--quiet);font-size:11.5px}
.grid,.tick-axis{stroke:var(--rule);stroke-width:1;shape-rendering:crispEdges}
.tick-axis{stroke:var(--quiet)}
.curve{width:calc(100% - 52px);margin:16px 18px 34px 34px}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-dasharray:var(--dash);vector-effect:non-scaling-stroke;
stroke-linejoin:round}
.line.look-average{stroke-width:2.6}
.keys{list-style:none;display:flex;flex-wrap:wrap;gap:4px 22px;margin:14px 0 0;padding:0;font-size:14px}
.keys li{display:flex;align-items:center;gap:8px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:10px 0 6px;padding:0;font-size:13.5px;
color:var(--quiet)}
.legend li{display:flex;align-items:center;gap:7px}
.legend svg{flex:none}

.strips{margin:16px 0 8px}
.strip-row{display:grid;grid-template-columns:minmax(150px,230px) 1fr 108px;gap:0 20px;align-items:center;padding:5px 0;
border-top:1px solid var(--rule);break-inside:avoid}
.strip-axis{border-top:0;padding-bottom:2px;font-size:13px}
.strip-name{display:flex;gap:8px;font-size:14px;line-height:1.3;align-items:baseline;min-width:0}
.step-id{color:var(--quiet);min-width:1.5em;text-align:right;font-size:13px}
.step-name{min-width:0;overflow-wrap:anywhere}
.strip-name>.quiet{font-size:12.5px;white-space:nowrap}
.strip{width:100%}
.strip-counts{font-size:11.5px;color:var(--quiet)}
.strip-counts div{height:15px;line-height:15px;white-space:nowrap}
.dot{fill:var(--c);fill-opacity:.55;stroke:var(--c);stroke-width:1}
.median{stroke:var(--c);stroke-width:2}

.recording{border-top:1px solid var(--rule);margin-top:26px;padding-top:2px;scroll-margin-top:8px}
.recording h3{margin-top:16px}
.recording .note{margin-bottom:10px;max-width:none}
.recording .scroll{padding-bottom:2px}
.timeline{width:calc(100% - 34px);margin:0 26px 0 8px}
.timeline .lane{font-size:12.5px;fill:var(--quiet)}
.timeline .lane-name{font-weight:640;fill:var(--ink)}
[class^=look-]>.lane .lane-name{fill:var(--c)}
.bed{fill:var(--bed)}
.hidden{fill:var(--hidden)}
.unseen{fill:var(--unseen)}
.tick{stroke:var(--ink);stroke-width:1.5}
.tick.wrong{stroke:var(--alert);stroke-dasharray:2 2}
.guide{stroke:var(--ink);stroke-opacity:.28;stroke-width:1;shape-rendering:crispEdges}
.tail{stroke:var(--c);stroke-width:2;stroke-opacity:.6}
.correct{fill:var(--c)}
circle.missed{fill:var(--paper);stroke:var(--c);stroke-width:1.6;stroke-dasharray:2.2 1.7}
use.false{fill:none;stroke:var(--alert);stroke-width:2.2;stroke-linecap:round}
text.id{font-size:11.5px;font-weight:600}
text.id.label,text.id.wrong{paint-order:stroke;stroke:var(--bed);stroke-width:3px;stroke-linejoin:round}
text.wrong,text.id.false{fill:var(--alert)}
text.wrong{font-weight:400;font-style:italic}
text.id.missed{fill:var(--quiet);font-weight:400}
text.nearly{font-size:10.5px;font-weight:400;fill:var(--quiet)}
.evidence{fill:var(--c);fill-opacity:.22;stroke:var(--c);stroke-opacity:.75;stroke-width:1;
vector-effect:non-scaling-stroke;stroke-linejoin:round}
.threshold{stroke:var(--quiet);stroke-width:1;stroke-dasharray:3 3;stroke-opacity:.8}
.filter{display:flex;flex-wrap:wrap;gap:6px;margin:16px 0 0}
.filter[hidden]{display:none}
.filter button{font:inherit;font-size:13.5px;color:var(--ink);background:none;border:1px solid var(--rule);
border-radius:99px;padding:3px 13px;cursor:pointer}
.filter button[aria-pressed=true]{background:var(--ink);color:var(--paper);border-color:var(--ink)}
#tip{position:absolute;max-width:260px;background:var(--ink);color:var(--paper);font-size:13px;line-height:1.35;
padding:6px 10px;border-radius:6px;pointer-events:none;z-index:2}

.case{margin:0;padding:18px 0;border-top:1px solid var(--rule);break-inside:avoid}
.cases .case:first-child{border-top:0;padding-top:10px}
.film{display:grid;grid-template-columns:repeat(6,minmax(0,160px));gap:8px;margin:0 0 9px;padding:3px}
.shot img{display:block;width:100%;height:auto;border-radius:4px;background:var(--bed)}
.shot span{display:block;font-size:12px;color:var(--quiet);margin-top:3px;line-height:1.3}
.moment img{outline:2px solid var(--ink);outline-offset:1px}
.moment span{color:var(--ink);font-weight:600}
.case p{margin:0 0 9px;font-size:14.5px;max-width:none}
.said{list-style:none;margin:0;padding:0;font-size:14px;display:flex;flex-wrap:wrap;gap:1px 22px}
dl.terms{font-size:14.5px;max-width:76ch;margin:8px 0}
dl.terms dt{font-weight:640;margin-top:10px}
dl.terms dd{margin:0}

@media (max-width:640px){
header,main,footer{padding-left:16px;padding-right:16px}
header{padding-top:24px}
h1{font-size:25px}
h2{margin-top:44px}
.lead{font-size:16.5px}
.main{font-size:14px}
.main th,.main td{padding-left:12px}
.main .direction{font-size:10.5px;line-height:1.25}
.main th:first-child{width:29%}
.numbers th,.numbers td{padding-right:10px}
.numbers tbody th{max-width:10em}
.interval{display:block;margin:0;font-size:11.5px}
.value{font-size:15px}
.strip-row{grid-template-columns:1fr 102px;gap:3px 12px}
.strip-name{grid-column:1/-1}
.strip-axis .strip-name{display:none}
.film{grid-template-columns:repeat(3,minmax(0,1fr))}
.said{flex-direction:column}
.timeline{width:calc(100% - 28px);margin:0 22px 0 6px}
.curve{width:calc(100% - 40px);margin-left:28px;margin-right:12px}
}
@media print{
@page{margin:14mm 13mm}
:root{print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{font-size:10.5pt}
header,main,footer{max-width:none;padding:0}
h1{font-size:20pt}
h2{font-size:14pt;margin-top:22pt;break-after:avoid}
h3,h4,caption{break-after:avoid}
.lead{font-size:12pt}
nav,.filter,#tip{display:none}
a{color:inherit;text-decoration:none}
.case,.main tbody,.together,.timeline,.note,tr{break-inside:avoid}
.note,.keys,.recording h3{break-after:avoid}
.scroll{overflow:visible}
.timeline{min-width:0!important}
.numbers{font-size:8.5pt}
.numbers th,.numbers td{padding:2px 8px 2px 0}
details:not([open])::details-content{content-visibility:visible;display:block;height:auto}
details summary{color:inherit;list-style:none}
}
"""
)

# Everything can be read without it: it shows tool tips where there is no mouse, and filters recordings.
SCRIPT = """
(() => {
  const tip = document.createElement('div');
  tip.id = 'tip'; tip.hidden = true; document.body.append(tip);
  document.addEventListener('pointerup', (event) => {
    const mark = event.pointerType === 'mouse' ? null : event.target.closest('svg :has(> title)');
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.querySelector('title').textContent;
    const box = mark.getBoundingClientRect();
    const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(8, left) + scrollX + 'px';
    tip.style.top = box.bottom + 8 + scrollY + 'px';
  });
  const filter = document.querySelector('.filter');
  if (filter) {
    filter.hidden = false;
    filter.addEventListener('click', (event) => {
      const chosen = event.target.closest('button');
      if (!chosen) return;
      for (const button of filter.children) button.setAttribute('aria-pressed', String(button === chosen));
      for (const part of document.querySelectorAll('.recording'))
        part.hidden = chosen.value !== '' && part.dataset.errors !== chosen.value;
    });
  }
})();
"""
