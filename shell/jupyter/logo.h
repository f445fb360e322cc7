// Has the kernel's pictures for launchers and menus: three bars in step.
#pragma once

namespace lockstep::shell::jupyter {

/// PNG of 32 x 32, in base64.
inline constexpr const char* kLogo32 =
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAYAAABzenr0AAABEElEQVR42mNggAJ5q3hhIO4G4ttA/J9G+DbUDmEGZAAU0Abi5zS0GB2D7NJG"
    "9jk9LUd2hDADNEj+DxDuZqBxnBNMEwwDaDkYD14HqDmk/E8tn/i/uHk2UVjTOQ2sLzijBUUcZAbILJIcANJw4+7j/6QA66BisN7VWw9jyIHM"
    "wuUIrA4A+YJUgM8BIAAyk2gHgILz7ftPVHMAyCxYFBGdBpwiKv53z1zzv3/OeqKwrlsmWB8ozpHFQWaAzBp6uWDAHdAxbdX/x89eE43N/QvA"
    "+mYu3YYhBzKLJAeA4ozauQBXOhicDhjwKBjNBQNeEA14UTzgldGAV8cD3iAZcdlwwJvlA94xGdiu2YB3Tge6ew4AMJt96wuGxdQAAAAASUVO"
    "RK5CYII=";

/// PNG of 64 x 64, in base64.
inline constexpr const char* kLogo64 =
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAYAAACqaXHeAAABzklEQVR42u2bP0vDUBTFH/SDuDk7CIIuQpAgCIIODg4uDoWCCt0yCRYU10Kr"
    "dBFBBB2rTm51cski5AMILk5aCsUK13clQmtL0mheeck9F874yLm/Nnn3/blKRcTU/JajVdfytdpalBG1Q8/s3VFJQw9ytYIMJRwnzsUdJ/GC"
    "ViNHif8W51aISr6Z4+R/1BwJIee//NA/YdQ7T8Lk9gMIBAII+qc6EipHhXOlVAB1FRYMUgH4KmMVXuoVoxKc/LcAAAAAIPmgpU2Pauc3dH3b"
    "Sl0zy6WBZ60XK7Fj2At7mgiAolelXu+TTMXCWnngeeWDxljj2BN7MwpgdmWHut0PMhl/BcDB3tijMQDe8RmZjv8A4GCPxgAc1a6sB8AejQHY"
    "KB1aD4A9Gv0I3j/41gJgb8ZngenFbTq9uKO39441ANgLe2JvKIQAAAAAAABMA9jdP6HW4xM9v7ymrrnVvaG1R9wY9sKeJgKAV1621gHszSgA"
    "XnLaXgkmXRYnAlCpXloPgD0CAF4BfAQxDaIQAgAAAAAAwJYYNkWxLY6DERyN4XAUx+O4IIFCCAAAAAAiAIi/Kiv+srT46/KyGybEt8ygaQpt"
    "c2icROssmqcFt89/AfUo3XLTZQXlAAAAAElFTkSuQmCC";

inline constexpr const char* kLogoSvg = R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">
  <rect width="100" height="100" rx="18" fill="#1f3a5f"/>
  <g fill="#fff">
    <rect x="18" y="24" width="64" height="12" rx="6"/>
    <rect x="18" y="44" width="64" height="12" rx="6"/>
    <rect x="18" y="64" width="64" height="12" rx="6"/>
  </g>
  <rect x="56.5" y="20" width="7" height="60" fill="#1f3a5f"/>
</svg>
)";

}  // namespace lockstep::shell::jupyter
