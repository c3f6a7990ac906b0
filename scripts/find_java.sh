# Find Java 17 or newer for Spark and export JAVA_HOME; install a headless JRE where this is root on
# Debian or Ubuntu; otherwise say what to install. To be sourced, by sh or bash, before anything that
# takes long: nobody shall wait for an installation to learn that Java is missing.

java_major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

find_java() {
    for java in "${JAVA_HOME:-/nonexistent}/bin/java" "$(command -v java)" /usr/lib/jvm/*/bin/java; do
        if [ -x "$java" ]; then
            major=$(java_major "$java")
            if [ "${major:-0}" -ge 17 ]; then
                java=$(readlink -f "$java")
                JAVA_HOME=${java%/bin/java}
                export JAVA_HOME
                return 0
            fi
        fi
    done
    return 1
}

if ! find_java; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing a headless Java runtime for Spark"
        apt-get update -qq
        apt-get install -y -qq openjdk-17-jre-headless || apt-get install -y -qq openjdk-21-jre-headless ||
            apt-get install -y -qq default-jre-headless
    fi
    if ! find_java; then
        echo "setup: Spark needs Java 17 or newer, and none was found. Install a package that has it" >&2
        echo "       (openjdk-17-jre-headless or newer, for example: sudo apt-get install" >&2
        echo "       default-jre-headless), or set JAVA_HOME to one that is there." >&2
        exit 1
    fi
fi
