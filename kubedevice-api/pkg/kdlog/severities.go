package kdlog

import "k8s.io/klog/v2"

// Info is klog.Info.
func Info(args ...interface{}) { klog.InfoDepth(1, args...) }

// InfoDepth is klog.InfoDepth.
func InfoDepth(depth int, args ...interface{}) { klog.InfoDepth(depth+1, args...) }

// Infoln is klog.Infoln.
func Infoln(args ...interface{}) { klog.InfolnDepth(1, args...) }

// Infof is klog.Infof.
func Infof(format string, args ...interface{}) { klog.InfofDepth(1, format, args...) }

// Warning is klog.Warning.
func Warning(args ...interface{}) { klog.WarningDepth(1, args...) }

// WarningDepth is klog.WarningDepth.
func WarningDepth(depth int, args ...interface{}) { klog.WarningDepth(depth+1, args...) }

// Warningln is klog.Warningln.
func Warningln(args ...interface{}) { klog.WarninglnDepth(1, args...) }

// Warningf is klog.Warningf.
func Warningf(format string, args ...interface{}) { klog.WarningfDepth(1, format, args...) }

// Error is klog.Error.
func Error(args ...interface{}) { klog.ErrorDepth(1, args...) }

// ErrorDepth is klog.ErrorDepth.
func ErrorDepth(depth int, args ...interface{}) { klog.ErrorDepth(depth+1, args...) }

// Errorln is klog.Errorln.
func Errorln(args ...interface{}) { klog.ErrorlnDepth(1, args...) }

// Errorf is klog.Errorf.
func Errorf(format string, args ...interface{}) { klog.ErrorfDepth(1, format, args...) }

// Fatal is klog.Fatal.
func Fatal(args ...interface{}) { klog.FatalDepth(1, args...) }

// FatalDepth is klog.FatalDepth.
func FatalDepth(depth int, args ...interface{}) { klog.FatalDepth(depth+1, args...) }

// Fatalln is klog.Fatalln.
func Fatalln(args ...interface{}) { klog.FatallnDepth(1, args...) }

// Fatalf is klog.Fatalf.
func Fatalf(format string, args ...interface{}) { klog.FatalfDepth(1, format, args...) }

// Exit is klog.Exit.
func Exit(args ...interface{}) { klog.ExitDepth(1, args...) }

// ExitDepth is klog.ExitDepth.
func ExitDepth(depth int, args ...interface{}) { klog.ExitDepth(depth+1, args...) }

// Exitln is klog.Exitln.
func Exitln(args ...interface{}) { klog.ExitlnDepth(1, args...) }

// Exitf is klog.Exitf.
func Exitf(format string, args ...interface{}) { klog.ExitfDepth(1, format, args...) }
