#!/bin/sh
# Unit tests of the Java port, then jcstress. Usage: ./check.sh [jcstress options]; -m quick unless given.
set -eu
cd "$(dirname "$0")"
mvn -q -B test
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath \
    -Dmdep.outputFile=target/classpath -DincludeScope=test
# Its report goes to target/ too.
cd target
java -cp "classes:test-classes:$(cat classpath)" org.openjdk.jcstress.Main ${*:--m quick} \
    -t MoveStress -r jcstress
