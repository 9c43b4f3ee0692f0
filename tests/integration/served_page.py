"""A server of heed's and its page in headless Chromium, for the tests of such pages."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse


def dom_of(chromium, folder, address):
    """The document that a page has become. Time goes on in steps of its own, as it asks the server and draws."""
    result = subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                             "--virtual-time-budget=10000", "--dump-dom", address],
                            capture_output=True, text=True, timeout=120, check=True)
    return result.stdout


def check_server(prepare, check):
    """Starts the command that prepare(folder) gives, with --port 0 --json, and calls check(url, page_of) where page_of(name, text)
    is the document of the page that is linked to with #name=text. Exit code 77 where Chromium is not installed."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("SKIPPED: Chromium is not installed (Debian's package is chromium)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        server = subprocess.Popen([*prepare(folder), "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True)
        try:
            url = json.loads(server.stdout.readline())["url"]
            check(url, lambda field, text: dom_of(chromium, folder, f"{url}/#{field}={urllib.parse.quote(text)}"))
        finally:
            server.terminate()
            code = server.wait(timeout=60)
    assert code == 143, code
