// Package enginetest gives tests real container engines: Docker and Podman in namespaces of the test binary's own, so that nothing of
// them, nor of what they start, outlives it or is seen by this machine's.
package enginetest
