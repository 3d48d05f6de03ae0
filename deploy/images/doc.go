// Package images makes container images of Kubeslot's static programs, without
// Docker and without a base image: one program, and a list of the modules that it is
// made of. The same sources give the same image, bit by bit.
package images
