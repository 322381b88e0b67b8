package container

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path"
)

// furnish copies what cannot be mounted, or made by the image's user, into a container that has not started.
func (b *Backend) furnish(ctx context.Context, id string, l launch) error {
	var program *os.File
	if l.program == "" {
		b.mu.Lock()
		binary := b.binary
		b.mu.Unlock()
		f, err := os.Open(binary)
		if err != nil {
			return err
		}
		defer f.Close()
		program = f
	}
	content, err := ownFiles(program)
	if err != nil {
		return err
	}
	return b.api.CopyTo(ctx, id, path.Dir(ownFolder), content)
}

// ownFiles is a tar of kici's folders in a container, and of its program when it is given. The program is read while it is sent.
func ownFiles(program *os.File) (io.Reader, error) {
	var head bytes.Buffer
	files := tar.NewWriter(&head)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: ownFolder[1:] + "/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: workRoot[1:] + "/", Mode: 0o777},
	}
	if program != nil {
		info, err := program.Stat()
		if err != nil {
			return nil, err
		}
		headers = append(headers, tar.Header{Typeflag: tar.TypeReg, Name: programPath[1:], Mode: 0o755, Size: info.Size()})
	}
	for i := range headers {
		if err := files.WriteHeader(&headers[i]); err != nil {
			return nil, err
		}
	}
	if program == nil {
		return &head, files.Close()
	}
	size := headers[len(headers)-1].Size
	end := make([]byte, -size&511+1024) // to a whole block, and two empty ones
	return io.MultiReader(&head, io.LimitReader(program, size), bytes.NewReader(end)), nil
}
