// Package archive packs files so that equal files make equal archives: in the order that they
// are given in, with one time, and all of root.
package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"strings"
	"time"
)

// File is one of an archive: its path in it, permissions, and content or what a symbolic
// link has.
type File struct {
	Name string
	Mode int64
	Data []byte
	Link string
}

// changed is the time of all files.
var changed = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TarGz writes a compressed tar.
func TarGz(out io.Writer, files []File) error {
	zipped := gzip.NewWriter(out)
	if err := Tar(zipped, files); err != nil {
		return err
	}
	return zipped.Close()
}

// Tar writes a tar.
func Tar(out io.Writer, files []File) error {
	w := tar.NewWriter(out)
	for _, f := range files {
		header := &tar.Header{Name: strings.TrimPrefix(f.Name, "/"), Mode: f.Mode, Size: int64(len(f.Data)),
			Linkname: f.Link, ModTime: changed, Format: tar.FormatPAX}
		if f.Link != "" {
			header.Typeflag = tar.TypeSymlink
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.Data); err != nil {
			return err
		}
	}
	return w.Close()
}

// Zip writes a zip, which has no permissions.
func Zip(out io.Writer, files []File) error {
	w := zip.NewWriter(out)
	for _, f := range files {
		to, err := w.CreateHeader(&zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: changed})
		if err != nil {
			return err
		}
		if _, err := to.Write(f.Data); err != nil {
			return err
		}
	}
	return w.Close()
}
