// Package command is `kubectl kubeslot`: it reads what the user may see, has package
// view join it, and prints that.
package command
