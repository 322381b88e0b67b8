// Package container starts agents as containers of Docker or Podman, by the API that both have (spec CT).
//
// # Any image is an agent's image
//
// This program is one static file: it is mounted read-only into the container, or copied where the engine has other files than we, and
// takes the place of the image's own command. The image needs nothing of kici's, neither git nor a shell to start.
//
// # Nothing of a job runs too early
//
// The container is made, its standard input is attached, and it starts. The agent inside waits for its token on that input (D13): the
// token is in no environment, no argument and no file. Meanwhile the container's address is known, and the rules of its network are
// made; then the token is given, and the agent says that it has it. When this process dies in between, the engine closes the input, and the agent leaves with
// wire.ExitNoToken: it has done nothing, and may be started again.
//
// # The way home
//
// An agent of an engine on this machine reaches the server by a socket that is mounted into it (backend.Spec.Socket), and so needs no
// network at all for that. It is cut off from its server by no rule, and reaches nothing else of the server by it.
//
// # What is ours
//
// Containers are found again by their labels: cluster, node, scaler and agent. Nothing without all of ours is ever touched (CT-24, XS-79).
// They outlive this process, and, where the engine can (live-restore, Podman), the engine's too.
package container
