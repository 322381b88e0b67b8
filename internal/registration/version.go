package registration

// Loaded is the version of the registry that this instance has in memory, 0 before it was needed (REG-3).
func (s *Service) Loaded() int64 {
	if ix := s.index.Load(); ix != nil {
		return ix.version
	}
	return 0
}
