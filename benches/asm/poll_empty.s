    push rbx
    mov rax,QWORD PTR [rdi+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 12
    mov rax,QWORD PTR [rdi+0x78]
    mov edx,DWORD PTR [rax+0x3c]
    bswap edx
    xor edx,DWORD PTR [rdi+0x158]
    test dl,0xfd
    je 1
    test dl,0x1
    jne 6
    test dl,0xc
    setne cl
    lea r8d,[rdx-0x10]
    cmp r8b,0x40
    setae r8b
    or r8b,cl
    jne 11
    mov ecx,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rdi+0x40],rcx
    jne 8
    mov r8,QWORD PTR [rdi+0x48]
0:
    mov ecx,edx
    shr ecx,0x10
    mov r9,QWORD PTR [r8+0x190]
    test r9,r9
    je 10
    cmp r9d,0x1
    jne 11
    mov r9,QWORD PTR [r8+0x198]
    cmp QWORD PTR [r9+0x28],rcx
    jbe 11
    mov r8,QWORD PTR [r9+0x20]
    movzx r10d,BYTE PTR [r8+rcx*1]
    test r10b,r10b
    je 11
    xor r10d,r10d
    xchg BYTE PTR [r8+rcx*1],r10b
    test r10b,r10b
    je 11
    mov r8,QWORD PTR [r9+0x10]
    mov r8,QWORD PTR [r8+rcx*8]
    mov r10d,edx
    shr r10d,0x16
    mov r11,QWORD PTR [r9+0x30]
    mov ebx,0x1
    shl rbx,cl
    lock or QWORD PTR [r11+r10*8],rbx
    mov rcx,QWORD PTR [r9+0x40]
    mov BYTE PTR [rcx+r10*1],0x1
    mov rcx,QWORD PTR [r9+0x50]
    shr edx,0x1c
    mov BYTE PTR [rcx+rdx*1],0x1
    add rax,QWORD PTR [rdi+0x50]
    cmp rax,QWORD PTR [rdi+0x88]
    jne 5
    jmp 4
1:
    mov r8d,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rdi+0x30],r8
    jne 7
    mov rcx,QWORD PTR [rdi+0x38]
    movzx r9d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r9w,r8w
    je 11
2:
    shr edx,0x10
    movzx r8d,r9w
    mov r10,QWORD PTR [rcx+0x100]
    and r8d,DWORD PTR [rcx+0x128]
    shl r8d,0x4
    mov r11,QWORD PTR [r10+r8*1+0x8]
    mov r8,QWORD PTR [r10+r8*1]
    shr r11,0x28
    cmp dx,r11w
    jne 9
3:
    inc r9d
    mov WORD PTR [rcx+0x80],r9w
    add rax,QWORD PTR [rdi+0x50]
    cmp rax,QWORD PTR [rdi+0x88]
    jne 5
4:
    xor BYTE PTR [rdi+0x158],0x1
    mov rax,QWORD PTR [rdi+0x80]
5:
    add QWORD PTR [rsi],r8
    mov QWORD PTR [rdi+0x78],rax
    mov eax,DWORD PTR [rdi+0x150]
    add eax,DWORD PTR [rdi+0x154]
    mov DWORD PTR [rdi+0x154],eax
    mov rcx,QWORD PTR [rdi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rdi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
    mov eax,0x1
    mov edx,0x1
    pop rbx
    ret
6:
    dec DWORD PTR [rdi+0x168]
    mov eax,0x1
    je 13
    xor edx,edx
    pop rbx
    ret
7:
    mov rcx,QWORD PTR [rdi+0xa8]
    mov r9d,r8d
    bswap r9d
    mov rcx,QWORD PTR [rcx+0x10]
    mov r10d,r9d
    shr r10d,0x9
    and r10d,0x7ff8
    mov r10,QWORD PTR [rcx+r10*1]
    test r10,r10
    je 11
    and r9d,0xfff
    shl r9d,0x4
    mov rcx,QWORD PTR [r10+r9*1+0x8]
    cmp rcx,0x2
    jb 11
    add r10,r9
    mov r9,QWORD PTR [r10]
    cmp DWORD PTR [rdi+0x15c],r9d
    jne 11
    mov r9,QWORD PTR [r10+0x8]
    test rcx,rcx
    je 11
    cmp r9,rcx
    jne 11
    mov QWORD PTR [rdi+0x30],r8
    mov QWORD PTR [rdi+0x38],rcx
    movzx r9d,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp r9w,r8w
    jne 2
    jmp 11
8:
    mov r8,QWORD PTR [rdi+0xa8]
    mov r10d,ecx
    bswap r10d
    mov r8,QWORD PTR [r8+0x10]
    mov r9d,r10d
    shr r9d,0x9
    and r9d,0x7ff8
    mov r9,QWORD PTR [r8+r9*1]
    test r9,r9
    je 11
    and r10d,0xfff
    shl r10d,0x4
    mov r8,QWORD PTR [r9+r10*1+0x8]
    cmp r8,0x2
    jb 11
    add r9,r10
    mov r10,QWORD PTR [r9]
    shr r10,0x20
    cmp DWORD PTR [rdi+0x15c],r10d
    jne 11
    mov r9,QWORD PTR [r9+0x8]
    test r8,r8
    je 11
    cmp r9,r8
    jne 11
    mov QWORD PTR [rdi+0x40],rcx
    mov QWORD PTR [rdi+0x48],r8
    jmp 0
9:
    mov r10d,edx
    sub r10d,r11d
    movzx r8d,WORD PTR [rcx]
    sub r8d,r9d
    cmp r10w,r8w
    jae 11
    add r10d,r9d
    mov r8d,r10d
    and r8d,DWORD PTR [rcx+0x128]
    mov r9,QWORD PTR [rcx+0x100]
    movzx r8d,r8w
    shl r8d,0x4
    mov r11,QWORD PTR [r9+r8*1+0x8]
    mov r8,QWORD PTR [r9+r8*1]
    shr r11,0x28
    mov r9d,r10d
    cmp dx,r11w
    je 3
    jmp 11
10:
    mov rdx,QWORD PTR [r8+0x198]
    mov r9d,DWORD PTR [rdx+0x100]
    movzx r8d,WORD PTR [rdx+0x80]
    cmp r9d,ecx
    jne 11
    cmp r8w,cx
    je 11
    mov r8,QWORD PTR [rdx+0x180]
    mov r9d,DWORD PTR [rdx+0x188]
    dec r9d
    and r9d,ecx
    mov r8,QWORD PTR [r8+r9*8]
    inc ecx
    mov DWORD PTR [rdx+0x100],ecx
    add rax,QWORD PTR [rdi+0x50]
    cmp rax,QWORD PTR [rdi+0x88]
    jne 5
    jmp 4
11:
    mov QWORD PTR [rdi+0x78],rax
12:
    mov ecx,0x1
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    and eax,0x1
    pop rbx
    ret
13:
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    mov eax,0x1
    xor edx,edx
    pop rbx
    ret
