#!/bin/bash
# Copies redis-server, nginx and haproxy of this machine with all libraries that they load into a folder, for machines that have none of them:
#
#   src/lab/scaleOut/bundleServers.sh <folder>
#   MOEFLUX_REDIS_SERVER=<folder>/redis-server MOEFLUX_HAPROXY=<folder>/haproxy node src/lab/scaleOut/faults.mjs
set -euo pipefail
folder=$1
mkdir -p "$folder/bin" "$folder/lib"
for name in redis-server nginx haproxy; do
  program=$(PATH=$PATH:/usr/sbin command -v "$name")
  cp -L "$program" "$folder/bin/$name"
  # Its own loader and libraries: those of another distribution may be older.
  ldd "$program" | grep -o '/[^ ]*' | sort -u | while read -r library; do cp -L "$library" "$folder/lib/"; done
  loader=$(ldd "$program" | grep -o '/[^ ]*/ld-[^ ]*' | head -1)
  cat > "$folder/$name" <<END
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
exec "\$here/lib/$(basename "$loader")" --library-path "\$here/lib" "\$here/bin/$name" "\$@"
END
  chmod +x "$folder/$name"
done
