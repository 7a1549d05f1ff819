#!/usr/bin/env bash
# java.sh CLASS args…: runs a program of this folder with the class path of Kafka's own clients.
# All are compiled together, once for each state of the sources.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
[ $# -ge 1 ] || die "usage: java.sh CLASS args…"
need_fetched kafka
compile() { javac -nowarn -d "$1" -cp "$(kafka_cp)" "$INTEROP_DIR"/*.java; }
classes=java-$KAFKA_VERSION-$(cat "$INTEROP_DIR"/*.java | cksum | cut -d' ' -f1)
once "$classes" compile
class=$1; shift
exec "$RK_JAVA" -Xmx256M -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  "-Dlog4j2.configurationFile=$RK_HOME/log4j2-tool.xml" -cp "$INTEROP_CACHE/$classes:$(kafka_cp)" "$class" "$@"
