// Package engineapi speaks the HTTP API of Docker, and of Podman, as far as agents need it: some fifteen calls. The engines' own Go client
// is four times as large as all else that this backend needs, most of it tracing that nobody here asks for; its types are used.
//
// The version of the API is agreed with the engine by the first call.
package engineapi
